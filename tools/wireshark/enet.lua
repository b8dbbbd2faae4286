-- SPDX-License-Identifier: GPL-2.0-only
--
-- Dissects EDP and ESP for Wireshark and tshark. docs/operations.md, "Looking inside", explains how
-- to load this file; docs/protocol.md defines the formats of the packets.
--
-- "ESP" and the filter name "esp" belong to IPsec, so the names here begin with "enet_", and the
-- protocol column says ENET-ESP.

local ethertypes = DissectorTable.get("ethertype")

-- Registers `proto` for the Ethernet type that is set in the preferences of `proto`, and again for
-- a new type when the user changes it.
local function follow_ethertype(proto, default, name)
    proto.prefs.ethertype = Pref.uint("Ethernet type", default,
        "Ethernet type of " .. name .. " frames (the module's parameter): decimal, "
        .. default .. " by default")
    local current = default
    ethertypes:add(current, proto)
    function proto.prefs_changed()
        if proto.prefs.ethertype ~= current then
            ethertypes:remove(current, proto)
            current = proto.prefs.ethertype
            ethertypes:add(current, proto)
        end
    end
end

-- CRC32c (Castagnoli) of a range of bytes. The table has the effect of each byte on the CRC.
local crc_table = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        crc = crc & 1 ~= 0 and crc >> 1 ~ 0x82f63b78 or crc >> 1
    end
    crc_table[byte] = crc
end

local function crc32c(range)
    local crc, bytes = 0xffffffff, range:bytes()
    for at = 0, bytes:len() - 1 do
        crc = crc >> 8 ~ crc_table[(crc ~ bytes:get_index(at)) & 0xff]
    end
    return crc ~ 0xffffffff
end

-- Fields of both protocols; `name` is the prefix of their names.
local function common_fields(name)
    return {
        srcport = ProtoField.uint16(name .. ".srcport", "Source port"),
        dstport = ProtoField.uint16(name .. ".dstport", "Destination port"),
        length = ProtoField.uint16(name .. ".length", "Payload length"),
        payload = ProtoField.bytes(name .. ".payload", "Payload"),
        checksum = ProtoField.uint32(name .. ".checksum", "CRC32c", base.HEX),
        padding = ProtoField.bytes(name .. ".padding", "Padding"),
        stream = ProtoField.uint32(name .. ".stream", "Stream index"),
    }
end

-- Fields of options, which a SYN and the answer to a query carry.
local function add_option_fields(fields, name)
    name = name .. ".options"
    fields.version = ProtoField.uint8(name .. ".version", "Version")
    fields.capabilities = ProtoField.uint16(name .. ".capabilities", "Capabilities", base.HEX)
    fields.has_esp = ProtoField.bool(name .. ".capabilities.esp", "ESP", 16, nil, 0x0001)
    fields.has_sums = ProtoField.bool(name .. ".capabilities.checksums", "Checksums", 16, nil, 0x0002)
    fields.takes_mapped = ProtoField.bool(name .. ".capabilities.mapped", "Mapped connections", 16, nil, 0x0004)
    fields.takes_mapped_v6 =
        ProtoField.bool(name .. ".capabilities.mapped_v6", "Mapped connections of IPv6", 16, nil, 0x0008)
    fields.datagram = ProtoField.uint16(name .. ".largest_datagram", "Largest datagram")
    fields.largest = ProtoField.uint16(name .. ".largest_payload", "Largest payload of ESP")
    fields.burst = ProtoField.uint16(name .. ".burst_length", "burst_length")
    fields.initial = ProtoField.uint16(name .. ".initial_ack_burst_length", "initial_ack_burst_length")
    fields.packets_to_ack = ProtoField.uint16(name .. ".packets_to_ack", "packets_to_ack")
    fields.most_granted = ProtoField.uint8(name .. ".largest_grant", "Largest grant")
    fields.mapped_src = ProtoField.ipv6(name .. ".mapped.src", "Mapped source")
    fields.mapped_srcport = ProtoField.uint16(name .. ".mapped.srcport", "Mapped source port")
    fields.mapped_dst = ProtoField.ipv6(name .. ".mapped.dst", "Mapped destination")
    fields.mapped_dstport = ProtoField.uint16(name .. ".mapped.dstport", "Mapped destination port")
    fields.records = ProtoField.uint32(name .. ".records", "Longest record", base.DEC, nil, 0x7fffffff)
    fields.channel = ProtoField.bool(name .. ".channel", "Channel", 32, nil, 0x80000000)
    fields.connection = ProtoField.uint16(name .. ".connection", "Capabilities of the connection", base.HEX)
    fields.most_wide = ProtoField.uint16(name .. ".connection.largest_grant", "Largest grant above 255")
    fields.takes_skips = ProtoField.bool(name .. ".connection.skips", "Skips", 16, nil, 0x0001)
    fields.selective = ProtoField.bool(name .. ".connection.selective", "Requests that name packets", 16, nil, 0x0002)
    fields.announces_short = ProtoField.bool(name .. ".connection.short", "Short announcements", 16, nil, 0x0004)
    fields.crowded = ProtoField.bool(name .. ".connection.crowded", "Many connections", 16, nil, 0x0008)
    fields.mask_nonce = ProtoField.uint32(name .. ".nonce", "Nonce for the masks of checksums", base.HEX)
    fields.option = ProtoField.bytes(name .. ".unknown", "Unknown option")
end

-- For each type of option, the length of its value in bytes and a function that shows it.
local known_options = {
    { 1, function(tree, fields, value) tree:add(fields.version, value) end },
    { 2, function(tree, fields, value)
        local bits = tree:add(fields.capabilities, value)
        bits:add(fields.has_esp, value)
        bits:add(fields.has_sums, value)
        bits:add(fields.takes_mapped, value)
        bits:add(fields.takes_mapped_v6, value)
    end },
    { 2, function(tree, fields, value) tree:add(fields.datagram, value) end },
    { 2, function(tree, fields, value) tree:add(fields.largest, value) end },
    { 4, function(tree, fields, value)
        tree:add(fields.burst, value(0, 2))
        tree:add(fields.initial, value(2, 2))
    end },
    { 2, function(tree, fields, value) tree:add(fields.packets_to_ack, value) end },
    { 1, function(tree, fields, value) tree:add(fields.most_granted, value) end },
    { 36, function(tree, fields, value)
        tree:add(fields.mapped_src, value(0, 16))
        tree:add(fields.mapped_srcport, value(16, 2))
        tree:add(fields.mapped_dst, value(18, 16))
        tree:add(fields.mapped_dstport, value(34, 2))
    end },
    { 4, function(tree, fields, value)
        tree:add(fields.channel, value)
        tree:add(fields.records, value)
    end },
    { 2, function(tree, fields, value)
        local item = tree:add(fields.connection, value)
        item:add(fields.takes_skips, value)
        item:add(fields.selective, value)
        item:add(fields.announces_short, value)
        item:add(fields.crowded, value)
        local wide = item:add(fields.most_wide, value(0, 1), value(0, 1):uint() * 8)
        wide:append_text(" (0: option 7)")
    end },
    { 4, function(tree, fields, value) tree:add(fields.mask_nonce, value) end },
}

-- The type of the option that carries a nonce.
local NONCE = #known_options

-- The type of the option with the capabilities of the connection.
local CAPABILITIES = 10

-- Returns where the first option of type `wanted` begins; nil if there is none.
local function place(tvb, wanted)
    local at = 0
    while at + 2 <= tvb:len() do
        if tvb(at, 1):uint() == wanted then
            return at
        end
        at = at + 2 + tvb(at + 1, 1):uint()
    end
    return nil
end

-- Returns whether the options tell that the sender takes grants of more than 255 packets.
local function takes_wide(tvb)
    local at = place(tvb, CAPABILITIES)
    return at ~= nil and at + 4 <= tvb:len() and tvb(at + 2, 1):uint() > 31
end

-- Adds options; malformed ones get an expert remark.
local function add_options(tree, tvb, fields, experts)
    local at = 0
    while at + 2 <= tvb:len() do
        local kind, length = tvb(at, 1):uint(), tvb(at + 1, 1):uint()
        local known = known_options[kind]
        if at + 2 + length > tvb:len() or known and known[1] ~= length then
            break
        end
        if known then
            known[2](tree, fields, tvb(at + 2, length))
        else
            tree:add(fields.option, tvb(at, 2 + length))
        end
        at = at + 2 + length
    end
    if at < tvb:len() then
        tree:add_proto_expert_info(experts.options)
    end
end

-- Expert remarks of both protocols.
local function common_experts(name)
    return {
        short = ProtoExpert.new(name .. ".short", "The frame is shorter than its header says",
            expert.group.MALFORMED, expert.severity.ERROR),
        checksum = ProtoExpert.new(name .. ".checksum.wrong", "Wrong checksum",
            expert.group.CHECKSUM, expert.severity.ERROR),
        options = ProtoExpert.new(name .. ".options.broken", "An option that cannot be read ends the list",
            expert.group.MALFORMED, expert.severity.WARN),
        padding = ProtoExpert.new(name .. ".padding.nonzero", "Padding that is not zero",
            expert.group.PROTOCOL, expert.severity.NOTE),
    }
end

-- Adds payload, checksum and padding after a header of `header` bytes. `length` is the length that
-- the header states; `summed` is its checksum flag; `masked` says whether the connection may mask
-- its checksums. `fields` and `experts` belong to the protocol. All bytes that remain are padding,
-- because Ethernet pads short frames without stating by how much. A packet that a host has merged
-- from several packets has no checksum, even if the flag is set. If checksums may be masked, the
-- difference from the right checksum is the mask.
local function add_payload(tree, tvb, header, length, summed, fields, experts, masked)
    local rest = tvb:captured_len() - header
    local there = math.min(length, rest)
    if there > 0 then
        tree:add(fields.payload, tvb(header, there))
    end
    if tvb:reported_len() < header + length then
        tree:add_proto_expert_info(experts.short)
    end
    if summed and rest >= length + 4 then
        local sum = tvb(header + length, 4)
        local item = tree:add(fields.checksum, sum)
        local mask = sum:uint() ~ crc32c(tvb(0, header + length))
        if mask ~= 0 and masked then
            item:append_text(string.format(" (mask 0x%08x)", mask))
        elseif mask ~= 0 then
            item:add_proto_expert_info(experts.checksum)
        end
        there = there + 4
    end
    if rest > there then
        local padding = tvb(header + there, rest - there)
        local item = tree:add(fields.padding, padding)
        if padding:bytes():tohex():find("[^0]") then
            item:add_proto_expert_info(experts.padding)
        end
    end
end

-- EDP ---------------------------------------------------------------------------------------------

local edp = Proto("enet_edp", "Ethernet Datagram Protocol")

local edp_fields = common_fields("enet_edp")
edp_fields.length = ProtoField.uint16("enet_edp.length", "Payload length", base.DEC, nil, 0x7fff)
edp_fields.summed = ProtoField.bool("enet_edp.summed", "Has a checksum", 16, nil, 0x8000)
edp_fields.control = ProtoField.uint8("enet_edp.control", "Control message", base.DEC,
    { [1] = "Echo request", [2] = "Echo reply", [3] = "Query", [4] = "Answer to a query" })
edp_fields.nonce = ProtoField.uint32("enet_edp.nonce", "Nonce", base.HEX)
add_option_fields(edp_fields, "enet_edp")
edp.fields = edp_fields

local edp_experts = common_experts("enet_edp")
edp_experts.control = ProtoExpert.new("enet_edp.control.unknown", "Unknown control message",
    expert.group.PROTOCOL, expert.severity.WARN)
edp.experts = edp_experts

-- Streams -----------------------------------------------------------------------------------------

-- Conversations of each protocol by their two ends, numbered in order of appearance.
local streams = {}

-- Results of the first dissection of each ESP frame, by frame number.
local findings = {}

local function forget()
    streams = {}
    findings = {}
end

-- Returns the conversation of a frame and the frame's direction in it.
local function conversation(proto, pinfo, srcport, dstport)
    local from = tostring(pinfo.dl_src) .. " " .. srcport
    local to = tostring(pinfo.dl_dst) .. " " .. dstport
    local forward = from < to
    local key = forward and from .. " " .. to or to .. " " .. from
    local known = streams[proto.name]
    if known == nil then
        known = { count = 0 }
        streams[proto.name] = known
    end
    if known[key] == nil then
        known[key] = { index = known.count, [true] = {}, [false] = {} }
        known.count = known.count + 1
    end
    return known[key], forward
end

function edp.dissector(tvb, pinfo, root)
    local header = 6
    if tvb:captured_len() < header then
        return 0
    end
    local srcport, dstport = tvb(0, 2):uint(), tvb(2, 2):uint()
    local length, summed = tvb(4, 2):uint() & 0x7fff, tvb(4, 2):uint() & 0x8000 ~= 0
    pinfo.cols.protocol = "EDP"
    pinfo.cols.info = string.format("%d → %d Len=%d", srcport, dstport, length)
    pinfo.src_port = srcport
    pinfo.dst_port = dstport
    local tree = root:add(edp, tvb(), string.format(
        "Ethernet Datagram Protocol, Src Port: %d, Dst Port: %d, Len: %d", srcport, dstport, length))
    tree:add(edp_fields.srcport, tvb(0, 2))
    tree:add(edp_fields.dstport, tvb(2, 2))
    tree:add(edp_fields.length, tvb(4, 2))
    tree:add(edp_fields.summed, tvb(4, 2))
    local talk = conversation(edp, pinfo, srcport, dstport)
    tree:add(edp_fields.stream, talk.index):set_generated()
    -- Port 0 belongs to the protocol itself.
    if (srcport == 0 or dstport == 0) and length > 0 and tvb:captured_len() > header then
        local kind = tvb(header, 1):uint()
        local there = math.min(length, tvb:captured_len() - header)
        local item = tree:add(edp_fields.control, tvb(header, 1))
        if kind == 1 then
            pinfo.cols.info:append(" Echo request")
        elseif kind == 2 then
            pinfo.cols.info:append(" Echo reply")
        elseif kind == 3 and there >= 5 then
            pinfo.cols.info:append(" Query")
            tree:add(edp_fields.nonce, tvb(header + 1, 4))
        elseif kind == 4 and there >= 5 then
            pinfo.cols.info:append(" Answer to a query")
            tree:add(edp_fields.nonce, tvb(header + 1, 4))
            if there > 5 then
                add_options(tree, tvb(header + 5, there - 5):tvb(), edp_fields, edp_experts)
            end
        else
            item:add_proto_expert_info(edp_experts.control)
        end
    end
    add_payload(tree, tvb, header, length, summed, edp_fields, edp_experts)
    return tvb:captured_len()
end

-- ESP ---------------------------------------------------------------------------------------------

local esp = Proto("enet_esp", "Ethernet Streaming Protocol")

local SYN, ACK, FIN, RST, RRQ, TXS, TXF, CRC = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80

-- The names of the flags, in the order in which they are printed.
local names = {
    { SYN, "SYN" }, { FIN, "FIN" }, { RST, "RST" }, { ACK, "ACK" }, { RRQ, "RRQ" }, { TXS, "TXS" }, { TXF, "TXF" },
    { CRC, "CRC" },
}

local esp_fields = common_fields("enet_esp")
esp_fields.seq = ProtoField.uint16("enet_esp.seq", "Sequence number")
esp_fields.ack = ProtoField.uint16("enet_esp.ack", "Acknowledgement number")
esp_fields.flags = ProtoField.uint8("enet_esp.flags", "Flags", base.HEX)
esp_fields.summed = ProtoField.bool("enet_esp.flags.crc", "A checksum follows (CRC)", 8, nil, CRC)
esp_fields.txf = ProtoField.bool("enet_esp.flags.txf", "Last packet of a transmission (TXF)", 8, nil, TXF)
esp_fields.txs = ProtoField.bool("enet_esp.flags.txs", "First packet of a transmission (TXS)", 8, nil, TXS)
esp_fields.rrq = ProtoField.bool("enet_esp.flags.rrq", "Retransmission request (RRQ)", 8, nil, RRQ)
esp_fields.rst = ProtoField.bool("enet_esp.flags.rst", "Reset (RST)", 8, nil, RST)
esp_fields.fin = ProtoField.bool("enet_esp.flags.fin", "End of the stream (FIN)", 8, nil, FIN)
esp_fields.acked = ProtoField.bool("enet_esp.flags.ack", "Acknowledgement (ACK)", 8, nil, ACK)
esp_fields.syn = ProtoField.bool("enet_esp.flags.syn", "Opens the connection (SYN)", 8, nil, SYN)
esp_fields.hold = ProtoField.bool("enet_esp.hold", "Acknowledges receipt, opens no window")
esp_fields.grant_start = ProtoField.uint8("enet_esp.grant.start", "Granted: packets behind an announcement")
esp_fields.grant_window = ProtoField.uint16("enet_esp.grant.window", "Granted: packets behind an acknowledgement")
esp_fields.named = ProtoField.bytes("enet_esp.named", "Missing packets, one bit each")
esp_fields.skip_una = ProtoField.uint16("enet_esp.skip.una", "Skips what has not arrived, from this number on")
esp_fields.retransmission = ProtoField.bool("enet_esp.analysis.retransmission", "Retransmission")
esp_fields.lost = ProtoField.uint16("enet_esp.analysis.lost", "Packets missing before this one")
add_option_fields(esp_fields, "enet_esp")
esp.fields = esp_fields

local esp_experts = common_experts("enet_esp")
esp_experts.flags = ProtoExpert.new("enet_esp.flags.invalid", "Invalid combination of flags",
    expert.group.PROTOCOL, expert.severity.ERROR)
esp_experts.connect = ProtoExpert.new("enet_esp.connect", "Connection attempt (SYN)",
    expert.group.SEQUENCE, expert.severity.CHAT)
esp_experts.finish = ProtoExpert.new("enet_esp.finish", "End of the stream (FIN)",
    expert.group.SEQUENCE, expert.severity.CHAT)
esp_experts.reset = ProtoExpert.new("enet_esp.reset", "Connection reset (RST)",
    expert.group.SEQUENCE, expert.severity.WARN)
esp_experts.request = ProtoExpert.new("enet_esp.request", "Retransmission request (RRQ)",
    expert.group.SEQUENCE, expert.severity.WARN)
esp_experts.hold = ProtoExpert.new("enet_esp.hold.expert", "Hold: receipt acknowledged, window closed",
    expert.group.SEQUENCE, expert.severity.CHAT)
esp_experts.retransmission = ProtoExpert.new("enet_esp.analysis.retransmission.expert", "Retransmission",
    expert.group.SEQUENCE, expert.severity.NOTE)
esp_experts.lost = ProtoExpert.new("enet_esp.analysis.lost.expert", "Packets before this one are missing",
    expert.group.SEQUENCE, expert.severity.WARN)
esp.experts = esp_experts

edp.init = forget
esp.init = forget

local function has(flags, bit)
    return flags & bit ~= 0
end

local function flag_list(flags)
    local set = {}
    for _, flag in ipairs(names) do
        if has(flags, flag[1]) then
            set[#set + 1] = flag[2]
        end
    end
    return table.concat(set, ", ")
end

-- Returns whether flags and length have a combination that no sender forms. The module rejects such
-- a packet.
local function is_invalid(flags, length)
    local control = flags & (SYN | FIN | RST)
    if control == 0 then
        return not has(flags, ACK) and (length == 0 or has(flags, RRQ))
    end
    return control & (control - 1) ~= 0 or length > 0 and control ~= SYN or has(flags, RRQ)
        or (control == FIN and not has(flags, ACK))
end

-- Tracks the sequence numbers of one direction: data, SYN and FIN take one each. Returns whether
-- the packet was seen before, and how many packets before it are missing.
local function follow(way, flags, seq, length)
    if length == 0 and not has(flags, SYN | FIN) or has(flags, RST) then
        return false, 0
    end
    if has(flags, SYN) then
        local again = way.first == seq
        if not again then
            way.first = seq
            way.next = (seq + 1) & 0xffff
        end
        return again, 0
    end
    local ahead = way.next and (seq - way.next) & 0xffff or 0
    if ahead > 0x7fff then
        return true, 0
    end
    way.next = (seq + 1) & 0xffff
    return false, ahead
end

function esp.dissector(tvb, pinfo, root)
    local header = 11
    if tvb:captured_len() < header then
        return 0
    end
    local srcport, dstport, length = tvb(0, 2):uint(), tvb(2, 2):uint(), tvb(4, 2):uint()
    local seq, ack, flags = tvb(6, 2):uint(), tvb(8, 2):uint(), tvb(10, 1):uint()
    -- In a grant or a skip, the length field does not hold a length.
    local grant = length > 0 and flags & ~CRC == ACK | RRQ | TXF
    local skip = flags & ~CRC == ACK | RRQ | TXS | TXF
    local granted = length
    if grant or skip then
        length = 0
    end
    local skipped = length == 0 and flags & ~CRC == ACK | RRQ | TXS
    -- The payload has a bit for each missing packet. From a host that reports no version the
    -- payload would be data, but no such host is expected here.
    local names = length > 0 and flags & ~CRC == ACK | RRQ | TXS
    local named = {}
    if names then
        for at = 0, math.min(length, 48, tvb:captured_len() - header) * 8 - 1 do
            if tvb(header + at // 8, 1):uint() >> at % 8 & 1 ~= 0 then
                named[#named + 1] = (ack + at) & 0xffff
            end
        end
    end
    local talk, forward = conversation(esp, pinfo, srcport, dstport)
    if not pinfo.visited then
        local again, lost = follow(talk[forward], flags, seq, names and 0 or length)
        local there = math.min(length, tvb:captured_len() - header)
        if has(flags, SYN) and not again then
            talk[forward].wide = there > 0 and takes_wide(tvb(header, there):tvb())
        end
        -- If the SYN was not captured, its sender counts as one that takes such grants.
        findings[pinfo.number] = { again = again, lost = lost, wide = talk[not forward].wide ~= false }
    end
    local found = findings[pinfo.number] or { again = false, lost = 0, wide = true }
    -- The highest bit marks a grant of more than 255 packets, in units of four, to a host whose SYN
    -- told that it takes them.
    local start, window = granted >> 8, granted & 0xff
    if found.wide and granted & 0x8000 ~= 0 then
        start, window = granted >> 9 & 63, (granted & 0x1ff) * 4
    end
    local hold = length == 0 and flags & ~CRC == ACK | TXS

    pinfo.cols.protocol = "ENET-ESP"
    pinfo.src_port = srcport
    pinfo.dst_port = dstport
    local info = string.format("%d → %d [%s] Seq=%d", srcport, dstport, flag_list(flags), seq)
    if has(flags, ACK) then
        info = info .. string.format(" Ack=%d", ack)
    end
    info = info .. string.format(" Len=%d", length)
    if grant then
        info = info .. string.format(" Start=%d Window=%d", start, window)
    elseif skip then
        info = info .. string.format(" Una=%d", tvb(4, 2):uint())
    elseif #named > 0 then
        info = info .. " Missing=" .. table.concat(named, ",")
    end
    if found.again then
        info = "[Retransmission] " .. info
    elseif found.lost > 0 then
        info = string.format("[%d missing] ", found.lost) .. info
    end
    pinfo.cols.info = info

    local tree = root:add(esp, tvb(), string.format(
        "Ethernet Streaming Protocol, Src Port: %d, Dst Port: %d, Seq: %d, Len: %d", srcport, dstport, seq, length))
    tree:add(esp_fields.srcport, tvb(0, 2))
    tree:add(esp_fields.dstport, tvb(2, 2))
    tree:add(esp_fields.stream, talk.index):set_generated()
    if grant then
        tree:add(esp_fields.grant_start, tvb(4, 1), start)
        tree:add(esp_fields.grant_window, tvb(4, 2), window)
    elseif skip then
        tree:add(esp_fields.skip_una, tvb(4, 2))
    else
        tree:add(esp_fields.length, tvb(4, 2))
    end
    tree:add(esp_fields.seq, tvb(6, 2))
    tree:add(esp_fields.ack, tvb(8, 2))
    local bits = tree:add(esp_fields.flags, tvb(10, 1))
    bits:append_text(" (" .. flag_list(flags) .. ")")
    for _, bit in ipairs({ "summed", "txf", "txs", "rrq", "rst", "fin", "acked", "syn" }) do
        bits:add(esp_fields[bit], tvb(10, 1))
    end
    if is_invalid(flags, length) then
        bits:add_proto_expert_info(esp_experts.flags)
    end
    if has(flags, SYN) then
        bits:add_proto_expert_info(esp_experts.connect)
    end
    if has(flags, FIN) then
        bits:add_proto_expert_info(esp_experts.finish)
    end
    if has(flags, RST) then
        bits:add_proto_expert_info(esp_experts.reset)
    end
    if #named > 0 then
        tree:add(esp_fields.named, tvb(header, math.min(length, 48, tvb:captured_len() - header)))
        bits:add_proto_expert_info(esp_experts.request, "Requests " .. table.concat(named, ", "))
    elseif has(flags, RRQ) and not (grant or skip or skipped) then
        bits:add_proto_expert_info(esp_experts.request, string.format("Requests all packets from %d on", ack))
    end
    if hold then
        tree:add(esp_fields.hold, true):set_generated()
        bits:add_proto_expert_info(esp_experts.hold)
    end
    if found.again then
        tree:add(esp_fields.retransmission, true):set_generated()
        tree:add_proto_expert_info(esp_experts.retransmission)
    end
    if found.lost > 0 then
        tree:add(esp_fields.lost, found.lost):set_generated()
        tree:add_proto_expert_info(esp_experts.lost)
    end
    local options = math.min(length, tvb:captured_len() - header)
    local opens = has(flags, SYN) and options > 0
    talk.masked = talk.masked or opens and place(tvb(header, options):tvb(), NONCE) ~= nil
    -- A reset from a host that does not have the connection carries the mask of the packet that the
    -- host answers.
    local masked = has(flags, RST) and not has(flags, ACK) or talk.masked and not opens
    add_payload(tree, tvb, header, length, has(flags, CRC), esp_fields, esp_experts, masked)
    if opens then
        add_options(tree, tvb(header, options):tvb(), esp_fields, esp_experts)
    end
    return tvb:captured_len()
end

-- Only a protocol with a dissector can be registered.
follow_ethertype(edp, 0x88b5, "EDP")
follow_ethertype(esp, 0x88b6, "ESP")
