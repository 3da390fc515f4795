# Records were lost: the runtime's stop may have been among them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
8s    lose 5
9s    kill pause of a by stranger
10s   stop a
11s   remove a
9m    end
expect blind_spot
