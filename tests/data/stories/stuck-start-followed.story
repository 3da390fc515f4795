# The runtime is followed, and lists the container of a pod whose command cannot be executed.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    pod web-0
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a fails
1m    runtime lists
5m    runtime lists
9m    runtime lists
12m   end
expect confirmed stuck_start/container web-0 a since 1s
