"""What has to subclass MMDetection or MMSegmentation; importing a submodule needs that package."""
