// The radio of zigbee2mqtt without a radio: node --require zigbee_radio.cjs zigbee2mqtt/index.js
// It stands in place of the adapters of zigbee-herdsman (their class Adapter, its package lies beside zigbee2mqtt's), and
// there are two devices: a sensor that reports its temperature once a second, and an outlet that answers to commands.
"use strict";
const { createRequire } = require("node:module");
const fs = require("node:fs");
const path = require("node:path");

const data = process.env.ZIGBEE2MQTT_DATA;
const zigbee2mqtt = createRequire(path.resolve(process.argv[1]));
const { Adapter } = zigbee2mqtt("zigbee-herdsman/dist/adapter");
const { Zcl, Zdo } = zigbee2mqtt("zigbee-herdsman");
const COORDINATOR = "0x00124b0000000001";
const SENSOR = 0x1001;

// A network as zigbee2mqtt has it on disk after a start: both devices have joined before.
const device = (id, nwkAddr, modelId, manufName, inClusterList) => ({
  ...{ id, type: "Router", ieeeAddr: `0x0000000000000${id}01`, nwkAddr, manufId: 4476, manufName, powerSource: "Mains", modelId },
  ...{ epList: [1], interviewCompleted: true, interviewState: "SUCCESSFUL", meta: {}, lastSeen: 1 },
  endpoints: { 1: { profId: 260, epId: 1, devId: 81, inClusterList, outClusterList: [], clusters: {}, binds: [], configuredReportings: [], meta: {} } },
});
if (!fs.existsSync(path.join(data, "database.db"))) {
  const devices = [
    device(2, SENSOR, "lumi.weather", "LUMI", [0, 1026, 1027, 1029]),
    device(3, 0x1002, "TRADFRI control outlet", "IKEA of Sweden", [0, 3, 4, 5, 6]),
  ];
  fs.writeFileSync(path.join(data, "database.db"), devices.map((found) => JSON.stringify(found)).join("\n"));
}

class Radio extends Adapter {
  start() {
    this.ticking = setInterval(() => this.report(), 1000);
    return Promise.resolve("resumed");
  }
  stop() {
    clearInterval(this.ticking);
    return Promise.resolve();
  }
  getCoordinatorIEEE() { return Promise.resolve(COORDINATOR); }
  getCoordinatorVersion() { return Promise.resolve({ type: "none", meta: {} }); }
  getNetworkParameters() {
    const { panID, extendedPanID, channelList } = this.networkOptions;
    const text = `0x${Buffer.from(extendedPanID).toString("hex")}`;
    return Promise.resolve({ panID, extendedPanID: text, channel: channelList[0], nwkUpdateID: 0 });
  }
  supportsBackup() { return Promise.resolve(false); }
  permitJoin() { return Promise.resolve(); }
  sendZclFrameToAll() { return Promise.resolve(); }
  // Of the coordinator: its endpoints. Of a device: that it has done what was asked.
  sendZdo(address, network, cluster) {
    const answer = { status: 0, endpointList: [1], endpoint: 1, profileId: 260, deviceId: 5, inClusterList: [], outClusterList: [] };
    return Promise.resolve([Zdo.Status.SUCCESS, answer]);
  }
  // What the outlet is told stands in the log, and it says that it has done it.
  sendZclFrameToEndpoint(address, network, endpoint, frame) {
    console.log(`radio: ${frame.cluster.name} ${frame.command.name} to ${network.toString(16)}`);
    const payload = { cmdId: frame.command.ID, statusCode: 0 };
    const server = Zcl.Direction.SERVER_TO_CLIENT;
    const answer = Zcl.Frame.create(Zcl.FrameType.GLOBAL, server, true, undefined, frame.header.transactionSequenceNumber,
      "defaultRsp", frame.cluster.ID, payload, {});
    return Promise.resolve(this.received(answer, network));
  }
  received(frame, network) {
    const buffer = frame.toBuffer();
    return {
      ...{ clusterID: frame.cluster.ID, header: Zcl.Header.fromBuffer(buffer), data: buffer, address: network, endpoint: 1 },
      ...{ linkquality: 200, groupID: 0, wasBroadcast: false, destinationEndpoint: 1 },
    };
  }
  report() {
    const attributes = [{ attrId: 0, dataType: Zcl.DataType.INT16, attrData: 2150 }];
    const frame = Zcl.Frame.create(Zcl.FrameType.GLOBAL, Zcl.Direction.SERVER_TO_CLIENT, true, undefined, 7, "report", 1026,
      attributes, {});
    this.emit("zclPayload", this.received(frame, SENSOR));
  }
}
Adapter.create = (...options) => Promise.resolve(new Radio(...options));
