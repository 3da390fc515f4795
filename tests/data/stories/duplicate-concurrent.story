# Two sandboxes of one pod live side by side.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    sandbox b of web-0 on podnet 10.88.0.3
10s   container main in b starts
9m    end
expect confirmed duplicate_sandbox/concurrent web-0 a b since 9s
