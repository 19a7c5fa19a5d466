from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "gpufleet.incidents"
    label = "incidents"
