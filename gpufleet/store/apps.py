from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "gpufleet.store"
    label = "store"
