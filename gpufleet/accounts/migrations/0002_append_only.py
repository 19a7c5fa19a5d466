"""The audit log is append-only: the database itself refuses to change or delete an entry."""

from django.db import migrations

CREATE = """
CREATE FUNCTION gpufleet_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON accounts_auditentry
FOR EACH ROW EXECUTE FUNCTION gpufleet_append_only();
"""
DROP = """
DROP TRIGGER audit_append_only ON accounts_auditentry;
DROP FUNCTION gpufleet_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [migrations.RunSQL(CREATE, DROP)]
