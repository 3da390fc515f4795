# Nobody waits for the runtime that is stopped. It goes on later.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime hangs
5m    runtime goes on
9m    end
expect closed runtime_unresponsive/stopped containerd x0 since 200s
