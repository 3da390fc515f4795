# The runtime needs 5 s for each answer, so that its list is not read in time.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime is slow
210s  pod web-1
217s  sandbox b of web-1 on podnet 10.88.0.3
225s  container main in b starts
5m    runtime is quick
9m    end
expect closed blind_spot Cri since 200s
