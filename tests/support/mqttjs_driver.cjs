// A client of MQTT.js, driven as driver.py says. The package is found in the folder that is the first argument.
'use strict';

const { createRequire } = require('node:module');
const fs = require('node:fs');
const readline = require('node:readline');

const mqtt = createRequire(process.argv[2])('mqtt');

let client;
let version;

function tell(kind, value) {
  process.stdout.write(JSON.stringify({ [kind]: value ?? null }) + '\n');
}

function fromPacket(given) {
  const found = {};
  const names = {
    contentType: 'content_type',
    responseTopic: 'response_topic',
    messageExpiryInterval: 'message_expiry',
  };
  for (const [name, ours] of Object.entries(names)) {
    if (given[name] !== undefined) found[ours] = given[name];
  }
  if (given.correlationData) found.correlation_data = given.correlationData.toString();
  if (given.subscriptionIdentifier !== undefined) {
    found.subscription_identifiers = [given.subscriptionIdentifier].flat();
  }
  if (given.userProperties) {
    found.user_properties = Object.entries(given.userProperties).flatMap(([key, values]) =>
      [values].flat().map((value) => [key, value]),
    );
  }
  return found;
}

function toPacket(given) {
  const properties = {};
  if (given.content_type !== undefined) properties.contentType = given.content_type;
  if (given.response_topic !== undefined) properties.responseTopic = given.response_topic;
  if (given.message_expiry !== undefined) properties.messageExpiryInterval = given.message_expiry;
  if (given.session_expiry !== undefined) properties.sessionExpiryInterval = given.session_expiry;
  if (given.topic_alias_maximum !== undefined) properties.topicAliasMaximum = given.topic_alias_maximum;
  if (given.correlation_data !== undefined) properties.correlationData = Buffer.from(given.correlation_data);
  if (given.user_properties !== undefined) {
    properties.userProperties = {};
    for (const [key, value] of given.user_properties) {
      properties.userProperties[key] = [...(properties.userProperties[key] ?? []), value];
    }
  }
  return properties;
}

const calls = {
  connect(call) {
    version = call.version;
    const options = {
      host: '127.0.0.1',
      port: call.port,
      clientId: call.client_id,
      protocolVersion: version,
      clean: call.clean,
      keepalive: call.keep_alive,
      reconnectPeriod: 0,
      protocol: { tcp: 'mqtt', tls: 'mqtts' }[call.transport] ?? call.transport,
      path: '/mqtt',
    };
    if (call.cafile) options.ca = fs.readFileSync(call.cafile);
    if (version === 3) options.protocolId = 'MQIsdp';
    if (version === 5) {
      options.autoAssignTopicAlias = true;
      options.properties = toPacket(call.properties);
    }
    if (call.will) {
      const { topic, payload, qos, retain, delay } = call.will;
      options.will = { topic, payload: Buffer.from(payload), qos, retain };
      if (version === 5) options.will.properties = { willDelayInterval: delay };
    }
    return new Promise((resolve, reject) => {
      client = mqtt.connect(options);
      client.once('connect', (packet) => resolve(packet.sessionPresent));
      client.on('error', reject);
      client.on('close', () => tell('ended', 'closed'));
      client.on('message', (topic, payload, packet) => {
        tell('message', {
          topic,
          payload: payload.toString('base64'),
          qos: packet.qos,
          retain: packet.retain,
          properties: fromPacket(packet.properties ?? {}),
        });
      });
    });
  },

  async subscribe(call) {
    const options = { qos: call.qos };
    if (version === 5 && call.identifier) options.properties = { subscriptionIdentifier: call.identifier };
    const granted = await client.subscribeAsync(call.filters, options);
    return granted.map((one) => one.qos);
  },

  async unsubscribe(call) {
    await client.unsubscribeAsync(call.filters);
  },

  async publish(call) {
    const options = { qos: call.qos, retain: call.retain };
    if (version === 5) options.properties = toPacket(call.properties);
    await client.publishAsync(call.topic, Buffer.from(call.payload, 'base64'), options);
  },

  async disconnect() {
    await client.endAsync();
  },
};

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const call = JSON.parse(line);
    try {
      tell('result', await calls[call.call](call));
    } catch (error) {
      tell('error', String(error));
    }
  }
  process.exit(0);
}

serve();
