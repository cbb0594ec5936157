internal import Jobs

extension Activity {
  /// The JSON that clients get. One array for each figure: half as long as one object for each step.
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
