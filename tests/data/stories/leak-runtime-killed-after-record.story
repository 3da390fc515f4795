# containerd from 1.5.15 and 1.6.9 on has the sandbox on record before its network: after its return the kubelet cleans up.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
5s    record a
6s    add a podnet 10.88.0.2
7s    runtime dies
9s    runtime starts
200s  stop a
201s  sandbox b of web-0 on podnet 10.88.0.3
202s  container main in b starts
203s  remove a
9m    end
expect nothing
