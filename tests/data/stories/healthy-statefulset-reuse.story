# A StatefulSet's pod comes back under its name with a new UID, and gets its address again.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of db-0 on podnet 10.88.0.2
2s    container main in a starts
9s    stop a
9s    pod db-0 goes
9s    remove a
10s   sandbox b of db-0-new on podnet 10.88.0.2
11s   container main in b starts
9m    end
expect nothing
