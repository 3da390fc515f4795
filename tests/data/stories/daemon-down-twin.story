# A runtime is started again after more than a minute, as after a manual upgrade.
0s    kubelet starts
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
2m    runtime is stopped
225s  runtime starts
8m    end
expect nothing
