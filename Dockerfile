# Serves the model that is mounted at /model; see docs/serving.md. Nothing is downloaded at run time.
FROM python:3.11-slim

ENV HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app

# torch is named first and exactly: a looser request may take a build with gigabytes of GPU libraries
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt "$(grep '^torch==' constraints.txt)"

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt ".[onnx,serve]" && useradd --create-home --uid 10001 halflabel

USER 10001
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["halflabel", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
