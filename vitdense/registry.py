"""Registries of vitdense: children of MMEngine's root registries under the scope ``vitdense``.

A config of MMDetection or MMSegmentation names our components as ``type='vitdense.ViT'`` and imports them with
``custom_imports = dict(imports=['vitdense'], allow_failed_imports=False)``. The same entry works in both, because
both code bases look a foreign scope up from the common root.
"""

from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import FUNCTIONS as MMENGINE_FUNCTIONS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODEL_WRAPPERS as MMENGINE_MODEL_WRAPPERS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS
from mmengine.registry import WEIGHT_INITIALIZERS as MMENGINE_WEIGHT_INITIALIZERS
from mmengine.registry import Registry

# The locations are imported when a component is looked up: what they hold subclasses parts of MMDetection and
# MMSegmentation, slow to import and not always installed.
MODELS = Registry("model", parent=MMENGINE_MODELS, scope="vitdense", locations=["vitdense.openmmlab.subclasses"])
DATASETS = Registry(
    "dataset",
    parent=MMENGINE_DATASETS,
    scope="vitdense",
    locations=["vitdense.datasets.grouped", "vitdense.datasets.index_masks"],
)
FUNCTIONS = Registry("function", parent=MMENGINE_FUNCTIONS, scope="vitdense")
MODEL_WRAPPERS = Registry("model_wrapper", parent=MMENGINE_MODEL_WRAPPERS, scope="vitdense")
HOOKS = Registry("hook", parent=MMENGINE_HOOKS, scope="vitdense")
METRICS = Registry(
    "metric",
    parent=MMENGINE_METRICS,
    scope="vitdense",
    locations=["vitdense.evaluation.lvis", "vitdense.evaluation.operating_point"],
)
WEIGHT_INITIALIZERS = Registry("weight initializer", parent=MMENGINE_WEIGHT_INITIALIZERS, scope="vitdense")
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    "optimizer wrapper constructor", parent=MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS, scope="vitdense"
)
