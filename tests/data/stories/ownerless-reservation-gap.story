# Records are lost again and again: a sandbox may have the address unseen.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    empty 10.88.0.7 in podnet
20s   unreadable
30s   lose 3
5m    end
expect confirmed blind_spot
