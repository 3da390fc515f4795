# Records were lost shortly before the first call of the sandbox: its ADD may be among them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
5s    lose 1
10s   del a podnet in process of b
11s   forget a
9m    end
expect blind_spot
