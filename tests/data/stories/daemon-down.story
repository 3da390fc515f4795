# Somebody stops the runtime and does not start it again.
0s    kubelet starts
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
2m    runtime is stopped
5m    end
expect confirmed daemon_failing/1 containerd x1 since 120s
