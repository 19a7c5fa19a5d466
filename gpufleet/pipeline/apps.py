from django.apps import AppConfig


class PipelineConfig(AppConfig):
    name = "gpufleet.pipeline"
    label = "pipeline"
