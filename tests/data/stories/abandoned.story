# A container crashed, and neither is it started again nor is the sandbox stopped.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
30s   container main in a exits 1
9m    end
expect confirmed abandoned_sandbox main web-0 a since 30s
