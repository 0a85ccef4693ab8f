#!/bin/sh
# Takes the official image's arguments: -jar DynamoDBLocal.jar ARGUMENTS
shift 2
libraries=/home/dynamodblocal/DynamoDBLocal_lib
exec java -Dsqlite4java.library.path=$libraries -cp "$libraries/*" \
  software.amazon.dynamodb.services.local.main.ServerRunner "$@"
