//! The diagram of a cluster: virtual IPs above, nodes below, with their connections; additional networks at the bottom.

use serde::Serialize;

use super::views::{Look, NodeView, VipView};
use crate::cluster::Role;

/// A diagram in CSS pixels.
#[derive(Debug, Serialize)]
pub struct Picture {
    pub class: &'static str,
    pub width: u32,
    pub height: u32,
    pub boxes: Vec<Shape>,
    /// Paths from a virtual IP to the nodes that serve it.
    pub paths: Vec<String>,
    /// Paths from nodes to the additional networks.
    pub wires: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Shape {
    pub kind: &'static str,
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    pub head: String,
    pub lines: Vec<String>,
    pub title: String,
}

/// Nodes of one role.
pub struct Circle<'a> {
    pub role: Role,
    pub title: String,
    pub nodes: Vec<&'a NodeView>,
}

const CELL: u32 = 40;
const GAP: u32 = 8;
const HEAD: u32 = 28;
const VIP_TOP: u32 = 16;
const VIP_HEIGHT: u32 = 78;
/// Between the virtual IPs and the nodes.
const DROP: u32 = 40;

impl Circle<'_> {
    fn height(&self, columns: u32) -> u32 {
        let rows = u32::try_from(self.nodes.len()).unwrap_or(0).div_ceil(columns);
        HEAD + rows * (CELL + GAP) + GAP / 2
    }

    /// Draws its frame and its nodes.
    fn draw(&self, x: u32, y: u32, width: u32, columns: u32, boxes: &mut Vec<Shape>) {
        boxes.push(Shape {
            kind: "group",
            x,
            y,
            width,
            height: self.height(columns),
            head: self.title.clone(),
            lines: Vec::new(),
            title: self.title.clone(),
        });
        let wide = (width - GAP * 2 - GAP * (columns - 1)) / columns;
        for (node, index) in self.nodes.iter().zip(0..) {
            boxes.push(Shape {
                kind: match node.look {
                    Look::Same => "node same",
                    Look::Other => "node other",
                    Look::Unknown => "node unknown",
                    Look::Removed => "node removed",
                },
                x: x + GAP + index % columns * (wide + GAP),
                y: y + HEAD + index / columns * (CELL + GAP),
                width: wide,
                height: CELL,
                head: clip(&node.name, wide / 8),
                lines: vec![node.planned.clone()],
                title: format!("{}, {}, {}: {}", node.name, node.mac, node.planned, node.state),
            });
        }
    }
}

/// Two columns, for screens and paper.
pub fn wide(vips: &[VipView], circles: &[Circle<'_>], further: &[String]) -> Picture {
    const WIDTH: u32 = 960;
    const BETWEEN: u32 = 32;
    let (left, right): (Vec<_>, Vec<_>) = circles.iter().partition(|circle| circle.role != Role::Worker);
    let few = right.iter().map(|circle| circle.nodes.len()).sum::<usize>() <= 6;
    let (left_width, left_columns, right_columns) = match (right.is_empty(), few) {
        (true, _) => (WIDTH - 2, 5, 1),
        (false, true) => (540, 3, 2),
        (false, false) => (350, 2, 3),
    };
    let columns = [
        (1, left_width, left_columns, left),
        (
            1 + left_width + BETWEEN,
            WIDTH - 2 - BETWEEN - left_width.min(WIDTH - 2 - BETWEEN),
            right_columns,
            right,
        ),
    ];
    let mut boxes = Vec::new();
    let mut paths = Vec::new();
    let mut height = 0;
    let top = VIP_TOP + VIP_HEIGHT + DROP;
    let mut feet = Vec::new();
    for (x, width, many, circles) in &columns {
        let mut y = top;
        for circle in circles {
            circle.draw(*x, y, *width, *many, &mut boxes);
            y += circle.height(*many) + GAP * 2;
        }
        if !circles.is_empty() {
            feet.push((x + width / 2, y - GAP * 2));
        }
        height = height.max(y);
    }
    let wires = draw_networks(further, WIDTH - 2, &feet, &mut height, &mut boxes);
    let one_column = columns[1].3.is_empty();
    for (vip, index) in vips.iter().zip(0u32..) {
        let (x, width, ..) = &columns[if one_column { 0 } else { usize::from(index > 0) }];
        let wide = 250;
        let parts = if one_column {
            u32::try_from(vips.len()).unwrap_or(1).max(1)
        } else {
            1
        };
        let part = width / parts;
        let middle = x + part * if one_column { index } else { 0 } + part / 2;
        vip_box(vip, middle - wide / 2, wide, &mut boxes);
        paths.push(format!("M{middle} {} V{}", VIP_TOP + VIP_HEIGHT, top - 2));
    }
    let class = "wide";
    Picture {
        class,
        width: WIDTH,
        height,
        boxes,
        paths,
        wires,
    }
}

/// One column, for narrow screens.
pub fn narrow(vips: &[VipView], circles: &[Circle<'_>], further: &[String]) -> Picture {
    const WIDTH: u32 = 340;
    let channel = if circles.iter().any(|circle| circle.role == Role::Worker) {
        16
    } else {
        2
    };
    let width = WIDTH - channel;
    let top = VIP_TOP + VIP_HEIGHT + DROP;
    let mut boxes = Vec::new();
    let mut paths = Vec::new();
    let mut y = top;
    let mut workers = None;
    for circle in circles {
        circle.draw(1, y, width, 2, &mut boxes);
        if circle.role == Role::Worker {
            workers = Some(y + HEAD / 2);
        }
        y += circle.height(2) + GAP * 2;
    }
    let wires = draw_networks(further, width, &[(1 + width / 2, y - GAP * 2)], &mut y, &mut boxes);
    for (vip, index) in vips.iter().zip(0u32..) {
        let wide = 162;
        let below = VIP_TOP + VIP_HEIGHT;
        let x = 1 + index * (wide + 14);
        vip_box(vip, x, wide, &mut boxes);
        paths.push(match workers.filter(|_| index > 0) {
            // To the right of the masters.
            Some(workers) => format!("M{} {below} V{workers} H{}", WIDTH - 6, width + 3),
            None => format!("M{} {below} V{}", x + wide / 2, top - 2),
        });
    }
    let class = "narrow";
    Picture {
        class,
        width: WIDTH,
        height: y,
        boxes,
        paths,
        wires,
    }
}

/// Draws a bar for each additional network at the bottom, and the paths from the `feet` of the columns.
fn draw_networks(
    further: &[String],
    width: u32,
    feet: &[(u32, u32)],
    height: &mut u32,
    boxes: &mut Vec<Shape>,
) -> Vec<String> {
    if further.is_empty() {
        return Vec::new();
    }
    let mut y = *height + GAP;
    for (network, index) in further.iter().zip(0..) {
        boxes.push(Shape {
            kind: "net",
            x: 1,
            y,
            width,
            height: CELL,
            head: clip(network, width / 8),
            lines: vec![nic_of_each(index)],
            title: format!("network {network}: {}", nic_of_each(index)),
        });
        y += CELL + GAP;
    }
    *height = y;
    // Behind the bars, down to the last one.
    let last = y - CELL - GAP;
    feet.iter().map(|(x, foot)| format!("M{x} {foot} V{last}")).collect()
}

/// The description of the additional network with this index, counted from 0.
pub fn nic_of_each(index: usize) -> String {
    match index {
        0 => "second NIC of each node".to_owned(),
        1 => "third NIC of each node".to_owned(),
        more => format!("NIC {} of each node", more + 2),
    }
}

fn vip_box(vip: &VipView, x: u32, width: u32, boxes: &mut Vec<Shape>) {
    boxes.push(Shape {
        kind: "vip",
        x,
        y: VIP_TOP,
        width,
        height: VIP_HEIGHT,
        head: vip.names.clone(),
        lines: vec![vip.ip.clone(), vip.short.clone(), format!("ports {}", vip.ports)],
        title: format!("{} {}, {}", vip.names, vip.ip, vip.long),
    });
}

fn clip(text: &str, most: u32) -> String {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
