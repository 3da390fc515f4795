# Somebody removes the empty file.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    empty 10.88.0.7 in podnet
6s    sandbox b of web-1 on podnet 10.88.0.3
5m    free 10.88.0.7
9m    end
expect closed ownerless_reservation 10.88.0.7 x1 since 5s
