# Somebody stops the kubelet, then the runtime. Nothing needs the runtime then.
0s    kubelet starts
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
2m    kubelet dies
121s  runtime dies
5m    end
expect confirmed daemon_failing/137 kubelet x1 since 120s
