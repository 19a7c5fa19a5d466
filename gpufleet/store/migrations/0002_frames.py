"""The table of frames, by hand: Django's models know neither partitions nor a primary key of two columns.

No foreign keys: a check per row and constraint would cost more than the rest of the insert, and a partition is dropped
whole. A frame whose target is gone is read by nobody.
"""

from django.db import migrations

CREATE = """
CREATE TABLE store_frame (
    scraped_at timestamptz NOT NULL,
    target_id bigint NOT NULL,
    cycle bigint NOT NULL,
    duration_seconds real NOT NULL,
    bytes integer NOT NULL,
    accepted integer NOT NULL,
    rejected integer NOT NULL,
    missing integer NOT NULL,
    layout_id bigint,
    reason text NOT NULL,
    "values" bytea STORAGE EXTERNAL,
    PRIMARY KEY (target_id, scraped_at)
) PARTITION BY RANGE (scraped_at)
"""


class Migration(migrations.Migration):
    dependencies = [("store", "0001_initial")]
    operations = [migrations.RunSQL(CREATE, "DROP TABLE store_frame")]
