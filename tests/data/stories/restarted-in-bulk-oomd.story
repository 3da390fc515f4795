# systemd-oomd kills containers of three of five pods.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
4s    sandbox d of web-3 on podnet 10.88.0.5
4s    container main in d starts
5s    sandbox e of web-4 on podnet 10.88.0.6
5s    container main in e starts
60s   container main in a is killed by systemd-oomd
61s   container main in b is killed by systemd-oomd
62s   container main in c is killed by systemd-oomd
65s   container main in a starts
66s   container main in b starts
67s   container main in c starts
9m    end
expect confirmed restarted_in_bulk systemd-oomd 3 of 3 a b c since 60s
