"""The router: stateless; reads ingress, checks headers, places by bucket, bounds the backlog."""
