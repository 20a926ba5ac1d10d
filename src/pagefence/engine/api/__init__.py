"""The OpenAI-compatible face of the router. `app.create_app` is the door; `ports` names what stands behind it."""
