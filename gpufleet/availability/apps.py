from django.apps import AppConfig


class AvailabilityConfig(AppConfig):
    name = "gpufleet.availability"
    label = "availability"
