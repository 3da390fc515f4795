# A power loss left the file of libcni's cache empty. The runtime ends pause and then fails before it calls DEL. With the
# file moved away, DEL is called.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    cache of a torn
60s   kill pause of a by runtime
6m    cache of a mended
6m    del a
6m    netns of a lost
7m    remove a
9m    end
expect closed stuck_stop/del undecodable web-0 a since 60s
expect closed blind_spot CniCache
