# docker build -t trace-scan .
# docker run --rm -v "$PWD":/data trace-scan trace.json.gz
FROM python:3.12 AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheel /tmp/wheel
RUN pip install --no-cache-dir -c /tmp/constraints.txt /tmp/wheel/*.whl && rm -r /tmp/wheel
USER nobody
WORKDIR /data
ENTRYPOINT ["trace-scan"]
