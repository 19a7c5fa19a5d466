from django.apps import AppConfig


class ScrapeConfig(AppConfig):
    name = "gpufleet.scrape"
    label = "scrape"
