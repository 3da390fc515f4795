# A volume that takes four minutes, an image that takes two, and a container that is in its back-off.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
1s    sandbox b of web-1 on podnet 10.88.0.3
1s    sandbox c of web-2 on podnet 10.88.0.4
2s    container main in c starts
3s    container main in c exits 1
2m    container main in b starts
4m    sandbox a of web-0 on podnet 10.88.0.2
4m    container main in a starts
5m    container main in c starts
5m    container main in c exits 1
10m   container main in c starts
10m   container main in c exits 1
12m   end
expect nothing
