# After a crash, the program can no longer be run: the runtime makes the container again and again.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
320s  container main in a fails
650s  container main in a fails
980s  container main in a fails
22m   end
expect nothing
