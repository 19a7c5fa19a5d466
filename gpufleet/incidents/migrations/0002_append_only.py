"""An incident's events are append-only: the database itself refuses to change or delete one.

Rows that go with a whole dropped replay cluster are let through: the session says so by a setting of its transaction.
"""

from django.db import migrations

CREATE = """
CREATE FUNCTION gpufleet_event_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('gpufleet.dropping_replay', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER incident_event_append_only BEFORE UPDATE OR DELETE ON incidents_incidentevent
FOR EACH ROW EXECUTE FUNCTION gpufleet_event_append_only();
"""
DROP = """
DROP TRIGGER incident_event_append_only ON incidents_incidentevent;
DROP FUNCTION gpufleet_event_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("incidents", "0001_initial")]

    operations = [migrations.RunSQL(CREATE, DROP)]
