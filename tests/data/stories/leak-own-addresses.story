# Docker in the pod and a virtual IP: no leases, whatever becomes of them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of dind-0 on podnet 10.88.0.2
3s    own-address a 172.17.0.1 docker0
3s    own-address a 10.88.0.200 eth0
9s    stop a
10s   remove a
9m    end
expect nothing
