# PID 1 stops the units of containers. Their programs catch SIGTERM.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   container main in a is ended by systemd
61s   container main in b is ended by systemd
62s   container main in c is ended by systemd
65s   container main in a starts
66s   container main in b starts
67s   container main in c starts
9m    end
expect confirmed restarted_in_bulk systemd 3 of 3 a b c since 60s
