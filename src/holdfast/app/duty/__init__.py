"""Words of `holdfast duty`."""
