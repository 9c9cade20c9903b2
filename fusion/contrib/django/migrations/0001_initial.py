# What permissions of the dashboard hang on; no table is made.

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Dashboard",
            fields=[("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "permissions": [
                    ("operate_dashboard", "Can put back, cancel and pause on the dashboard"),
                    ("administer_dashboard", "Can do everything on the dashboard"),
                ],
                "managed": False,
                "default_permissions": (),
            },
        ),
    ]
