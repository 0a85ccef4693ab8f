#!/bin/sh
# The one use of ZooKeeper's own script that is made of it here: zkServer.sh start-foreground FILE
jars=/usr/share/java
exec java -cp "/conf:$jars/zookeeper.jar:$jars/slf4j-log4j12.jar:$jars/log4j-1.2.jar" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "$2"
