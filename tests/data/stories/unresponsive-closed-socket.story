# The agent may not use the runtime's socket. The kubelet may.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime is closed to us
210s  sandbox b of web-1 on podnet 10.88.0.3
212s  container main in b starts
9m    end
expect confirmed blind_spot Cri since 200s
