"""Traffic with a known answer: a model of backbone traffic, its exact super hosts, and captures of it."""
