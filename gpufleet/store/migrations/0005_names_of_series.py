"""Every series has its name's id from its beginning, so a reader that knows the series can find their chunks."""

from django.db import migrations

KNOWN = "INSERT INTO store_name (name) SELECT DISTINCT name FROM store_series ORDER BY name ON CONFLICT DO NOTHING"


class Migration(migrations.Migration):
    dependencies = [("store", "0004_series_by_name")]
    operations = [migrations.RunSQL(KNOWN, migrations.RunSQL.noop)]
