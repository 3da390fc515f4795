# Somebody kills a container, not the sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 137
10s   container main in a starts
9m    end
expect nothing
