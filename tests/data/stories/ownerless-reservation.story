# A power cut left empty files in the store. No pod has their addresses.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    empty 10.88.0.7 in podnet
5s    empty 10.88.0.8 in podnet
6s    sandbox b of web-1 on podnet 10.88.0.3
9m    end
expect confirmed ownerless_reservation 10.88.0.7 x2 since 5s
