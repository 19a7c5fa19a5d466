from django.apps import AppConfig


class DetectConfig(AppConfig):
    name = "gpufleet.detect"
    label = "detect"
