# The runtime sets up the loopback interface by itself, as the other pod shows. What it waits for is something else.
0s    runtime starts
0s    kubelet starts
1s    sandbox o of web-1 on podnet 10.88.0.9
2s    container main in o starts
3s    pod web-0
4s    sandbox a of web-0 begins
4s    add a podnet 10.88.0.2
4s    record a
2m    sandbox b of web-0 begins
2m    add b podnet 10.88.0.3
2m    record b
4m    sandbox b runs
4m    container main in b starts
9m    end
expect nothing
