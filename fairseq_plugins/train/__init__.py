"""Training by recipe: settings, launching, progress, resuming."""
