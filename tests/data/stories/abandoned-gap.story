# Records were lost in the back-off. A container may have run meanwhile, so the time counts from the loss.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
200s  lose 5
9m    end
expect blind_spot
