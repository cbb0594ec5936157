internal import CYAML

/// An event of libyaml's parser.
enum Event {
  case streamStart, streamEnd, documentStart, documentEnd
  case alias(name: String)
  case scalar(Scalar)
  case sequenceStart(tag: String?)
  case sequenceEnd
  case mappingStart(tag: String?)
  case mappingEnd
}

/// Owns a libyaml parser and the bytes that it reads.
final class EventReader {
  private let parser: UnsafeMutablePointer<yaml_parser_t>
  private let bytes: UnsafeMutableBufferPointer<UInt8>

  /// - Parameter text: valid UTF-8.
  init(_ text: [UInt8]) throws(YAMLError) {
    parser = .allocate(capacity: 1)
    bytes = .allocate(capacity: text.count)
    _ = bytes.initialize(fromContentsOf: text)
    guard yaml_parser_initialize(parser) == 1 else {
      // libyaml has freed and zeroed the parser, so that deinit may delete it again.
      throw YAMLError(.outOfMemory, at: Location(line: 1, column: 1))
    }
    yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
    yaml_parser_set_input_string(parser, bytes.baseAddress, bytes.count)
  }

  deinit {
    yaml_parser_delete(parser)
    parser.deallocate()
    bytes.deallocate()
  }

  /// Reads the next event and the location where it starts.
  func next() throws(YAMLError) -> (event: Event, location: Location) {
    var event = yaml_event_t()
    guard yaml_parser_parse(parser, &event) == 1 else { throw failure() }
    defer { yaml_event_delete(&event) }
    return (read(event), Location(event.start_mark))
  }

  private func read(_ event: yaml_event_t) -> Event {
    switch event.type {
    case YAML_STREAM_START_EVENT: return .streamStart
    case YAML_DOCUMENT_START_EVENT: return .documentStart
    case YAML_DOCUMENT_END_EVENT: return .documentEnd
    case YAML_ALIAS_EVENT: return .alias(name: text(event.data.alias.anchor) ?? "")
    case YAML_SCALAR_EVENT:
      let data = event.data.scalar
      let bytes = UnsafeBufferPointer(start: data.value, count: data.length)
      let value = String(decoding: bytes, as: UTF8.self)
      return .scalar(Scalar(value, style: style(data.style), tag: text(data.tag)))
    case YAML_SEQUENCE_START_EVENT:
      return .sequenceStart(tag: text(event.data.sequence_start.tag))
    case YAML_SEQUENCE_END_EVENT: return .sequenceEnd
    case YAML_MAPPING_START_EVENT: return .mappingStart(tag: text(event.data.mapping_start.tag))
    case YAML_MAPPING_END_EVENT: return .mappingEnd
    default: return .streamEnd
    }
  }

  private func style(_ style: yaml_scalar_style_t) -> Scalar.Style {
    switch style {
    case YAML_PLAIN_SCALAR_STYLE: .plain
    case YAML_LITERAL_SCALAR_STYLE, YAML_FOLDED_SCALAR_STYLE: .block
    default: .quoted
    }
  }

  private func text(_ pointer: UnsafeMutablePointer<yaml_char_t>?) -> String? {
    pointer.map { String(cString: $0) }
  }

  private func failure() -> YAMLError {
    let state = parser.pointee
    let problem = state.problem.map { String(cString: $0) } ?? "is not YAML"
    switch state.error {
    case YAML_MEMORY_ERROR: return YAMLError(.outOfMemory, at: Location(state.mark))
    case YAML_READER_ERROR:
      // libyaml's reader reports a byte offset, not a line.
      let place = Location(ofByte: state.problem_offset, in: bytes)
      return YAMLError(.syntax(problem), at: place)
    default:
      let context = state.context.map { " " + String(cString: $0) } ?? ""
      return YAMLError(.syntax(problem + context), at: Location(state.problem_mark))
    }
  }
}

extension Location {
  init(_ mark: yaml_mark_t) {
    self.init(line: mark.line + 1, column: mark.column + 1)
  }

  /// The location of a byte in a UTF-8 text.
  init(ofByte offset: Int, in bytes: some Collection<UInt8>) {
    var (line, column) = (1, 1)
    for byte in bytes.prefix(offset) {
      if byte == UInt8(ascii: "\n") {
        (line, column) = (line + 1, 1)
      } else if byte & 0xC0 != 0x80 {
        column += 1
      }
    }
    self.init(line: line, column: column)
  }
}
