internal import Jobs

/// The sign in the middle of a placeholder: a framed landscape. Three dots below it mean that the image is still
/// loading, a diagonal line means that loading failed. Each shape is defined by the distance to its edge, so that it
/// is smooth at every size.
struct PlaceholderSign {
  /// A point in the sign's own unit: its frame reaches from -1 to 1 horizontally.
  private struct Point {
    var x, y: Double
    static func - (a: Point, b: Point) -> Point { Point(x: a.x - b.x, y: a.y - b.y) }
    func dot(_ other: Point) -> Double { x * other.x + y * other.y }
    var length: Double { dot(self).squareRoot() }
  }

  /// The part of the image that the sign covers, in pixels.
  let columns, rows: Range<Int>
  private let placeholder: Placeholder
  private let centre: Point
  /// Pixels from the sign's middle to the side of its frame.
  private let scale: Double

  private static let half = Point(x: 1, y: 0.78)
  private static let stroke = 0.12
  private static let sun = Point(x: -0.44, y: -0.28)
  private static let hills = [
    Point(x: -1, y: 0.55), Point(x: -0.42, y: 0), Point(x: 0.02, y: 0.42), Point(x: 0.4, y: 0.06),
    Point(x: 1, y: 0.62),
  ]
  private static let strike = (Point(x: 1, y: -1.05), Point(x: -1, y: 1.05))

  /// An image with a side below 16 pixels has no sign.
  init(_ placeholder: Placeholder, width: Int, height: Int) {
    self.placeholder = placeholder
    let room = Double(min(width, height))
    // A fifth of a small image's side, less of a large one's.
    scale = room < 16 ? 0 : max(5, min(0.21 * room, 22 + 0.07 * room))
    let lift = placeholder == .loading && room >= 64 ? 0.16 : 0
    centre = Point(x: Double(width) / 2, y: Double(height) / 2 - lift * scale)
    // The dots are the lowest part.
    let reach = 1.5 * scale + 1
    columns = Self.range(centre.x, reach, within: scale > 0 ? width : 0)
    rows = Self.range(centre.y, reach, within: scale > 0 ? height : 0)
  }

  private static func range(_ middle: Double, _ reach: Double, within count: Int) -> Range<Int> {
    let first = min(max(0, Int((middle - reach).rounded(.down))), count)
    return first..<max(first, min(count, Int((middle + reach).rounded(.up))))
  }

  /// How much ink covers the pixel with this center, 0 to 1.
  func coverage(x: Double, y: Double) -> Double {
    let place = Point(x: (x - centre.x) / scale, y: (y - centre.y) / scale)
    let frame = Self.distance(place, toBox: Self.half, rounded: 0.2)
    var ink = edge(abs(frame) - Self.stroke / 2)
    if frame < 0 {
      ink = max(ink, edge((place - Self.sun).length - 0.16))
      ink = max(ink, edge(Self.distance(place, toLine: Self.hills) - Self.stroke / 2))
    }
    switch placeholder {
    case .loading: return max(ink, dots(place))
    case .failure:
      let strike = Self.distance(place, from: Self.strike.0, to: Self.strike.1)
      // A gap on both sides separates the line from the sign.
      return max(min(ink, 1 - edge(strike - 1.6 * Self.stroke)), edge(strike - Self.stroke / 2))
    }
  }

  /// Small images have no dots: they would be specks.
  private func dots(_ place: Point) -> Double {
    guard scale >= 12 else { return 0 }
    return [(-0.36, 1.0), (0.0, 0.7), (0.36, 0.4)].map { x, strength in
      strength * edge((place - Point(x: x, y: 1.22)).length - 0.095)
    }.max() ?? 0
  }

  /// The share of a pixel that lies inside an edge at this distance.
  private func edge(_ distance: Double) -> Double { min(1, max(0, 0.5 - distance * scale)) }

  private static func distance(
    _ place: Point, toBox half: Point, rounded radius: Double
  ) -> Double {
    let past = Point(x: abs(place.x) - half.x + radius, y: abs(place.y) - half.y + radius)
    let outside = Point(x: max(0, past.x), y: max(0, past.y)).length
    return outside + min(0, max(past.x, past.y)) - radius
  }

  private static func distance(_ place: Point, toLine points: [Point]) -> Double {
    zip(points, points.dropFirst()).map { distance(place, from: $0, to: $1) }.min() ?? .infinity
  }

  private static func distance(_ place: Point, from: Point, to: Point) -> Double {
    let (way, here) = (to - from, place - from)
    let share = min(1, max(0, here.dot(way) / way.dot(way)))
    return (here - Point(x: way.x * share, y: way.y * share)).length
  }
}
