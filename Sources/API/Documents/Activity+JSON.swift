internal import Jobs

extension Activity {
  /// The response of `GET /activity`. One array per figure takes half the bytes of one object per step.
  var json: [UInt8] {
    var writer = JSONWriter(capacity: 4096)
    writer.object { writer in
      writer.key("interval")
      writer.int(Self.interval)
      writer.key("end")
      writer.string(end.description)
      let columns: [(StaticString, KeyPath<Step, Int>)] = [
        ("queued", \.queued), ("loading", \.loading), ("succeeded", \.succeeded),
        ("failed", \.failed),
      ]
      for (name, path) in columns {
        writer.key(name)
        writer.array(steps) { $0.int($1[keyPath: path]) }
      }
    }
    return writer.bytes
  }
}
